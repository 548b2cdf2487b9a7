(** Where radii come from: Cauchy-Schwarz over bands, RoPE, balance and rotation, what a stored witness must contain,
    and why a scale rounded up never clips.

    A vector is a function on coordinates, with the list of its coordinates given apart. *)

From Coq Require Import Reals List Lra Lia Psatz Permutation.
From Assay Require Import Sums Softmax.
Import ListNotations.
Open Scope R_scope.

(** * Vectors *)

Definition dot {I} (l : list I) (x y : I -> R) : R := Sum l (fun i => x i * y i).
Definition norm {I} (l : list I) (x : I -> R) : R := sqrt (dot l x x).
Definition vplus {I} (x y : I -> R) (i : I) : R := x i + y i.
Definition vminus {I} (x y : I -> R) (i : I) : R := x i - y i.

Section Vectors.
Context {I : Type}.
Implicit Types (l : list I) (x y q k r : I -> R).

Lemma dot_self_nonneg l x : 0 <= dot l x x.
Proof. apply Sum_nonneg. intros i _. nra. Qed.

Lemma norm_nonneg l x : 0 <= norm l x.
Proof. apply sqrt_pos. Qed.

Lemma norm_sq l x : norm l x * norm l x = dot l x x.
Proof. apply sqrt_sqrt, dot_self_nonneg. Qed.

Theorem cauchy_schwarz l x y : Rabs (dot l x y) <= norm l x * norm l y.
Proof.
  unfold norm. rewrite <- sqrt_mult by apply dot_self_nonneg. rewrite <- sqrt_Rsqr_abs.
  apply sqrt_le_1_alt. unfold Rsqr.
  pose proof (Sum_CS l (fun _ => 1) x y (fun _ _ => Rle_0_1)) as K. cbv beta in K.
  rewrite (Sum_ext l (fun t => 1 * (x t * y t)) (fun i => x i * y i)) in K by (intros; ring).
  rewrite (Sum_ext l (fun t => 1 * x t ^ 2) (fun i => x i * x i)) in K by (intros; ring).
  rewrite (Sum_ext l (fun t => 1 * y t ^ 2) (fun i => y i * y i)) in K by (intros; ring).
  unfold dot. lra.
Qed.

Lemma dot_plus_r l x y z : dot l x (vplus y z) = dot l x y + dot l x z.
Proof. unfold dot, vplus. rewrite <- Sum_plus. apply Sum_ext. intros; ring. Qed.

Lemma dot_minus_r l x y z : dot l x (vminus y z) = dot l x y - dot l x z.
Proof. unfold dot, vminus. rewrite <- Sum_minus. apply Sum_ext. intros; ring. Qed.

Lemma dot_minus_l l x y z : dot l (vminus x y) z = dot l x z - dot l y z.
Proof. unfold dot, vminus. rewrite <- Sum_minus. apply Sum_ext. intros; ring. Qed.

Lemma norm_triangle l x y : norm l (vplus x y) <= norm l x + norm l y.
Proof.
  pose proof (norm_nonneg l x). pose proof (norm_nonneg l y). pose proof (norm_nonneg l (vplus x y)).
  assert (K : dot l (vplus x y) (vplus x y) = dot l x x + 2 * dot l x y + dot l y y).
  { unfold dot, vplus. rewrite <- Sum_scal, <- !Sum_plus. apply Sum_ext. intros; ring. }
  pose proof (cauchy_schwarz l x y) as C. pose proof (Rle_abs (dot l x y)).
  rewrite <- !norm_sq in K. 
  destruct (Rle_lt_dec (norm l (vplus x y)) (norm l x + norm l y)) as [|L]; [assumption|exfalso]. nra.
Qed.

Lemma norm_ext l x y : (forall i, In i l -> x i = y i) -> norm l x = norm l y.
Proof. intros H. unfold norm, dot. f_equal. apply Sum_ext. intros i Hi. now rewrite H. Qed.

(** * Bands and norm (2.1) *)

(** Any partition of the coordinates into bands. *)
Theorem bands l (bs : list (list I)) q r :
  Permutation l (concat bs) ->
  Rabs (dot l q r) <= Sum bs (fun b => norm b q * norm b r) /\
  Sum bs (fun b => norm b q * norm b r) <= norm l q * norm l r.
Proof.
  intros HP. assert (E : forall x y, dot l x y = Sum bs (fun b => dot b x y)).
  { intros x y. unfold dot. rewrite (Sum_perm _ _ _ HP). apply Sum_concat. }
  split.
  - rewrite E. apply Rle_trans with (1 := Sum_Rabs _ _). apply Sum_le. intros b _. apply cauchy_schwarz.
  - unfold norm at 3 4. rewrite <- sqrt_mult by apply dot_self_nonneg. rewrite !E.
    apply Rsqr_incr_0_var; [|apply sqrt_pos]. rewrite Rsqr_sqrt.
    2: { apply Rmult_le_pos; apply Sum_nonneg; intros; apply dot_self_nonneg. }
    unfold Rsqr.
    pose proof (Sum_CS bs (fun _ => 1) (fun b => norm b q) (fun b => norm b r) (fun _ _ => Rle_0_1)) as K. cbv beta in K.
    rewrite (Sum_ext bs (fun b => 1 * (norm b q * norm b r)) (fun b => norm b q * norm b r)) in K by (intros; ring).
    rewrite (Sum_ext bs (fun b => 1 * norm b q ^ 2) (fun b => dot b q q)) in K.
    2: { intros b _. rewrite <- norm_sq. ring. }
    rewrite (Sum_ext bs (fun b => 1 * norm b r ^ 2) (fun b => dot b r r)) in K.
    2: { intros b _. rewrite <- norm_sq. ring. }
    lra.
Qed.

(** The radius of a stored band witness [w], and of a norm witness, for logits scaled by [sc]. *)
Theorem band_radius l bs sc q k kh (w : list I -> R) :
  Permutation l (concat bs) -> 0 <= sc -> (forall b, In b bs -> norm b (vminus kh k) <= w b) ->
  Rabs (sc * dot l q kh - sc * dot l q k) <= sc * Sum bs (fun b => norm b q * w b).
Proof.
  intros HP Hsc Hw. replace (sc * dot l q kh - sc * dot l q k) with (sc * dot l q (vminus kh k)).
  2: { rewrite dot_minus_r. ring. }
  rewrite Rabs_mult, (Rabs_pos_eq sc) by assumption. apply Rmult_le_compat_l; [assumption|].
  apply Rle_trans with (1 := proj1 (bands l bs q (vminus kh k) HP)). apply Sum_le. intros b Hb.
  apply Rmult_le_compat_l; [apply norm_nonneg|now apply Hw].
Qed.

Theorem norm_radius l sc q k kh w :
  0 <= sc -> norm l (vminus kh k) <= w ->
  Rabs (sc * dot l q kh - sc * dot l q k) <= sc * (norm l q * w).
Proof.
  intros Hsc Hw. replace (sc * dot l q kh - sc * dot l q k) with (sc * dot l q (vminus kh k)).
  2: { rewrite dot_minus_r. ring. }
  rewrite Rabs_mult, (Rabs_pos_eq sc) by assumption. apply Rmult_le_compat_l; [assumption|].
  apply Rle_trans with (1 := cauchy_schwarz l q (vminus kh k)).
  apply Rmult_le_compat_l; [apply norm_nonneg|assumption].
Qed.

(** * What a stored witness must contain (2.2)

    [Q] is the exact transformed query, [qo] the operand used, [x] the exact transformed key, [xf] the rotated key the
    encoder saw, [kd] the decoded key, [L] the computed logit, [w] the stored witness and [qn] the norm used by the
    reader.  Each rounding enters as one hypothesis; the code discharges them. *)
Theorem witness_contents l sc Q qo x xf kd L w qn g_rot g_dot g_qry :
  0 <= sc -> 0 <= g_qry ->
  norm l (vminus xf x) <= g_rot * norm l xf ->
  norm l (vminus qo Q) <= g_qry * norm l qo ->
  Rabs (L - sc * dot l qo kd) <= sc * (g_dot * (norm l qo * norm l kd)) ->
  norm l (vminus kd xf) + g_rot * norm l xf + (g_dot + g_qry) * norm l kd <= w ->
  norm l qo * (1 + g_qry) <= qn ->
  0 <= g_dot ->
  Rabs (L - sc * dot l Q x) <= sc * (qn * w).
Proof.
  intros Hsc Hg Hrot Hq HL Hw Hqn Hd.
  pose proof (norm_nonneg l qo) as N1. pose proof (norm_nonneg l kd) as N2. pose proof (norm_nonneg l Q) as N3.
  pose proof (norm_nonneg l (vminus kd xf)) as N4. pose proof (norm_nonneg l (vminus xf x)) as N5.
  replace (L - sc * dot l Q x)
    with ((L - sc * dot l qo kd) + sc * (dot l (vminus qo Q) kd + dot l Q (vminus kd xf) + dot l Q (vminus xf x))).
  2: { rewrite dot_minus_l, !dot_minus_r. ring. }
  apply Rle_trans with (1 := Rabs_triang _ _).
  rewrite (Rabs_mult sc), (Rabs_pos_eq sc) by assumption.
  set (D := dot l (vminus qo Q) kd + dot l Q (vminus kd xf) + dot l Q (vminus xf x)).
  assert (HD : Rabs D <= norm l (vminus qo Q) * norm l kd + norm l Q * norm l (vminus kd xf) + norm l Q * norm l (vminus xf x)).
  { unfold D. pose proof (cauchy_schwarz l (vminus qo Q) kd). pose proof (cauchy_schwarz l Q (vminus kd xf)).
    pose proof (cauchy_schwarz l Q (vminus xf x)).
    apply Rle_trans with (1 := Rabs_triang _ _).
    apply Rplus_le_compat; [|assumption].
    apply Rle_trans with (1 := Rabs_triang _ _). lra. }
  assert (HQ : norm l Q <= norm l qo * (1 + g_qry)).
  { assert (E : norm l Q = norm l (vplus qo (fun i => - vminus qo Q i))).
    { apply norm_ext. intros i _. unfold vplus, vminus. ring. }
    rewrite E. apply Rle_trans with (1 := norm_triangle l _ _).
    replace (norm l (fun i => - vminus qo Q i)) with (norm l (vminus qo Q)); [lra|].
    unfold norm, dot. f_equal. apply Sum_ext. intros; ring. }
  assert (Hqn0 : norm l qo <= qn) by nra.
  assert (HQn : norm l Q <= qn) by lra.
  assert (K1 : norm l (vminus qo Q) * norm l kd <= qn * (g_qry * norm l kd)).
  { apply Rle_trans with (g_qry * norm l qo * norm l kd); [now apply Rmult_le_compat_r|].
    assert (0 <= g_qry * norm l kd) by (apply Rmult_le_pos; assumption). nra. }
  assert (K2 : norm l Q * norm l (vminus kd xf) <= qn * norm l (vminus kd xf)) by (apply Rmult_le_compat_r; assumption).
  assert (K3 : norm l Q * norm l (vminus xf x) <= qn * (g_rot * norm l xf)) by (apply Rmult_le_compat; assumption).
  assert (K4 : g_dot * (norm l qo * norm l kd) <= qn * (g_dot * norm l kd)).
  { assert (0 <= g_dot * norm l kd) by (apply Rmult_le_pos; assumption). nra. }
  apply Rle_trans with (sc * (qn * (norm l (vminus kd xf) + g_rot * norm l xf + (g_dot + g_qry) * norm l kd))).
  - assert (sc * (g_dot * (norm l qo * norm l kd)) <= sc * (qn * (g_dot * norm l kd))) by (apply Rmult_le_compat_l; assumption).
    assert (sc * Rabs D <= sc * (qn * (g_qry * norm l kd) + qn * norm l (vminus kd xf) + qn * (g_rot * norm l xf))).
    { apply Rmult_le_compat_l; [assumption|lra]. }
    lra.
  - apply Rmult_le_compat_l; [assumption|]. apply Rmult_le_compat_l; lra.
Qed.

(** The same split where the encoder's residual is bounded by other means (dither, 4.3); the operand is the reference. *)
Theorem dither_contents l sc qo x xf kd L dres g_rot g_dot :
  0 <= sc ->
  norm l (vminus xf x) <= g_rot * norm l xf ->
  Rabs (L - sc * dot l qo kd) <= sc * (g_dot * (norm l qo * norm l kd)) ->
  Rabs (sc * dot l qo (vminus kd xf)) <= dres ->
  Rabs (L - sc * dot l qo x) <= dres + sc * (norm l qo * (g_rot * norm l xf + g_dot * norm l kd)).
Proof.
  intros Hsc Hrot HL HD.
  replace (L - sc * dot l qo x)
    with ((L - sc * dot l qo kd) + sc * dot l qo (vminus kd xf) + sc * dot l qo (vminus xf x)).
  2: { rewrite !dot_minus_r. ring. }
  apply Rle_trans with (1 := Rabs_triang _ _). pose proof (Rabs_triang (L - sc * dot l qo kd) (sc * dot l qo (vminus kd xf))).
  assert (Rabs (sc * dot l qo (vminus xf x)) <= sc * (norm l qo * (g_rot * norm l xf))).
  { rewrite Rabs_mult, (Rabs_pos_eq sc) by assumption. apply Rmult_le_compat_l; [assumption|].
    apply Rle_trans with (1 := cauchy_schwarz l qo (vminus xf x)). apply Rmult_le_compat_l; [apply norm_nonneg|assumption]. }
  lra.
Qed.

End Vectors.

(** * RoPE keeps the norm of every band *)

Section Rope.
Context {J : Type}.

(** A coordinate is a frequency pair and one of its two sides; a band is a list of pairs. *)
Definition coords (js : list J) : list (J * bool) := flat_map (fun j => [(j, true); (j, false)]) js.

Definition rope (theta : J -> R) (n : R) (x : J * bool -> R) (c : J * bool) : R :=
  let '(j, b) := c in
  if b then x (j, true) * cos (n * theta j) - x (j, false) * sin (n * theta j)
  else x (j, true) * sin (n * theta j) + x (j, false) * cos (n * theta j).

Lemma dot_coords (js : list J) (x y : J * bool -> R) :
  dot (coords js) x y = Sum js (fun j => x (j, true) * y (j, true) + x (j, false) * y (j, false)).
Proof. unfold dot. induction js as [|j js IH]; simpl; [reflexivity|]. rewrite <- IH. unfold coords. ring. Qed.

Theorem rope_dot (js : list J) theta n x y : dot (coords js) (rope theta n x) (rope theta n y) = dot (coords js) x y.
Proof.
  rewrite !dot_coords. apply Sum_ext. intros j _. unfold rope.
  pose proof (sin2_cos2 (n * theta j)) as K. unfold Rsqr in K.
  set (s := sin (n * theta j)) in *. set (c := cos (n * theta j)) in *.
  transitivity ((s * s + c * c) * (x (j, true) * y (j, true) + x (j, false) * y (j, false))); [ring|rewrite K; ring].
Qed.

Theorem rope_band_norm (js : list J) theta n x : norm (coords js) (rope theta n x) = norm (coords js) x.
Proof. unfold norm. now rewrite rope_dot. Qed.

End Rope.

(** * Balance and rotation keep q.k (5.1) *)

Section Transform.
Context {I : Type} (eqb : forall a b : I, {a = b} + {a <> b}).

(** Columns of [M] are orthonormal over the coordinates [l]. *)
Definition orthonormal (l : list I) (M : I -> I -> R) : Prop :=
  forall j k, In j l -> In k l -> Sum l (fun i => M i j * M i k) = if eqb j k then 1 else 0.

Definition mv (l : list I) (M : I -> I -> R) (x : I -> R) (i : I) : R := Sum l (fun j => M i j * x j).

Lemma Sum_delta l j (f : I -> R) : NoDup l -> In j l -> Sum l (fun k => (if eqb j k then 1 else 0) * f k) = f j.
Proof.
  intros Hn Hj. induction l as [|a l IH]; [easy|]. inversion_clear Hn as [|? ? Ha Hn']. simpl. destruct Hj as [->|Hj].
  - destruct (eqb j j); [|congruence]. rewrite Sum_0; [lra|]. intros k Hk. destruct (eqb j k); [subst; contradiction|ring].
  - destruct (eqb j a); [subst; contradiction|]. rewrite IH by assumption. ring.
Qed.

Theorem rotation_dot l M x y : NoDup l -> orthonormal l M -> dot l (mv l M x) (mv l M y) = dot l x y.
Proof.
  intros Hn HM. unfold dot, mv.
  rewrite (Sum_ext l _ (fun i => Sum l (fun j => Sum l (fun k => x j * (M i j * M i k * y k))))).
  2: { intros i _. rewrite <- Sum_scal_r. apply Sum_ext. intros j _. rewrite <- Sum_scal. apply Sum_ext. intros; ring. }
  rewrite Sum_swap. apply Sum_ext. intros j Hj.
  rewrite Sum_swap. rewrite (Sum_ext l _ (fun k => x j * ((if eqb j k then 1 else 0) * y k))).
  2: { intros k Hk. rewrite <- (HM j k Hj Hk), Sum_scal, Sum_scal_r. ring. }
  rewrite Sum_scal, Sum_delta by assumption. ring.
Qed.

Theorem rotation_norm l M x : NoDup l -> orthonormal l M -> norm l (mv l M x) = norm l x.
Proof. intros Hn HM. unfold norm. now rewrite rotation_dot. Qed.

Theorem balance_rotation_dot l M lam q k :
  NoDup l -> orthonormal l M -> (forall i, In i l -> lam i <> 0) ->
  dot l (mv l M (fun i => lam i * q i)) (mv l M (fun i => k i / lam i)) = dot l q k.
Proof.
  intros Hn HM Hl. rewrite rotation_dot by assumption. unfold dot. apply Sum_ext. intros i Hi. field. now apply Hl.
Qed.

(** With bypassed channels [B] taken out before balance and rotation (2.5). *)
Theorem bypass_dot l M lam (B : I -> bool) q k :
  NoDup l -> orthonormal l M -> (forall i, In i l -> lam i <> 0) ->
  dot l q k
  = dot l (fun i => if B i then q i else 0) (fun i => if B i then k i else 0)
  + dot l (mv l M (fun i => lam i * (if B i then 0 else q i)))
          (mv l M (fun i => (if B i then 0 else k i) / lam i)).
Proof.
  intros Hn HM Hl. rewrite (balance_rotation_dot l M lam (fun i => if B i then 0 else q i) (fun i => if B i then 0 else k i))
    by assumption.
  unfold dot. rewrite <- Sum_plus. apply Sum_ext. intros i _. destruct (B i); ring.
Qed.

(** 5.2: the product that balance minimises, its lower bound, and the lambda that attains it; [k2] and [q2] are the mean
    squares of the channels. *)
Theorem balance_lower_bound (l : list I) (k2 q2 lam : I -> R) :
  (forall i, In i l -> 0 <= k2 i) -> (forall i, In i l -> 0 <= q2 i) -> (forall i, In i l -> 0 < lam i) ->
  (Sum l (fun i => sqrt (k2 i * q2 i)))^2
  <= Sum l (fun i => k2 i / (lam i)^2) * Sum l (fun i => q2 i * (lam i)^2).
Proof.
  intros Hk Hq Hl.
  pose proof (Sum_CS l (fun _ => 1) (fun i => sqrt (k2 i) / lam i) (fun i => sqrt (q2 i) * lam i) (fun _ _ => Rle_0_1)) as K.
  cbv beta in K.
  rewrite (Sum_ext l _ (fun i => sqrt (k2 i * q2 i))) in K.
  2: { intros i Hi. rewrite sqrt_mult by auto. specialize (Hl i Hi). field. lra. }
  rewrite (Sum_ext l (fun i => 1 * (sqrt (k2 i) / lam i) ^ 2) (fun i => k2 i / (lam i)^2)) in K.
  2: { intros i Hi. rewrite <- (sqrt_sqrt (k2 i)) at 2 by auto. specialize (Hl i Hi). field. lra. }
  rewrite (Sum_ext l (fun i => 1 * (sqrt (q2 i) * lam i) ^ 2) (fun i => q2 i * (lam i)^2)) in K.
  2: { intros i Hi. rewrite <- (sqrt_sqrt (q2 i)) at 2 by auto. ring. }
  exact K.
Qed.

Theorem balance_attained (l : list I) (k2 q2 lam : I -> R) :
  (forall i, In i l -> 0 < k2 i) -> (forall i, In i l -> 0 < q2 i) ->
  (forall i, In i l -> (lam i)^2 = sqrt (k2 i / q2 i)) ->
  Sum l (fun i => k2 i / (lam i)^2) * Sum l (fun i => q2 i * (lam i)^2) = (Sum l (fun i => sqrt (k2 i * q2 i)))^2.
Proof.
  intros Hk Hq Hl.
  assert (E1 : forall i, In i l -> k2 i / (lam i)^2 = sqrt (k2 i * q2 i)).
  { intros i Hi. specialize (Hk i Hi). specialize (Hq i Hi). rewrite (Hl i Hi), sqrt_div_alt, sqrt_mult by lra.
    pose proof (sqrt_lt_R0 _ Hk). pose proof (sqrt_lt_R0 _ Hq).
    rewrite <- (sqrt_sqrt (k2 i)) at 1 by lra. field. lra. }
  assert (E2 : forall i, In i l -> q2 i * (lam i)^2 = sqrt (k2 i * q2 i)).
  { intros i Hi. specialize (Hk i Hi). specialize (Hq i Hi). rewrite (Hl i Hi), sqrt_div_alt, sqrt_mult by lra.
    pose proof (sqrt_lt_R0 _ Hq). rewrite <- (sqrt_sqrt (q2 i)) at 1 by lra. field. lra. }
  rewrite (Sum_ext l _ _ E1), (Sum_ext l _ _ E2). ring.
Qed.

End Transform.

(** The hypotheses are met by the transform of the cache: the Hadamard matrix of any order 2^n with signs on its
    columns.  A coordinate is written in binary. *)
Section Hadamard.

Fixpoint cube (n : nat) : list (list bool) :=
  match n with
  | O => [[]]
  | S n => map (cons true) (cube n) ++ map (cons false) (cube n)
  end.

Fixpoint hadamard (i j : list bool) : R :=
  match i, j with
  | a :: i', b :: j' => (if andb a b then -1 else 1) / sqrt 2 * hadamard i' j'
  | _, _ => 1
  end.

Definition signed_hadamard (sign : list bool -> R) (i j : list bool) : R := hadamard i j * sign j.

Definition bits_dec : forall a b : list bool, {a = b} + {a <> b} := list_eq_dec Bool.bool_dec.

Lemma cube_NoDup n : NoDup (cube n).
Proof.
  induction n as [|n IH]; simpl; [constructor; [easy|constructor]|].
  assert (K : forall (b : bool) l, NoDup l -> NoDup (map (cons b) l)).
  { intros b l H. induction H as [|x l Hx Hl IHl]; simpl; constructor; [|assumption].
    rewrite in_map_iff. intros (y & E & Hy). congruence. }
  assert (D : forall l1 l2 : list (list bool), NoDup l1 -> NoDup l2 -> (forall x, In x l1 -> ~ In x l2) -> NoDup (l1 ++ l2)).
  { intros l1 l2 H1 H2 H. induction H1 as [|x l Hx Hl IHl]; simpl; [assumption|]. constructor.
    - rewrite in_app_iff. intros [?|?]; [contradiction|]. apply (H x); [now left|assumption].
    - apply IHl. intros y Hy. apply H. now right. }
  apply D; auto. intros x. rewrite !in_map_iff. intros (y & E1 & _) (z & E2 & _). congruence.
Qed.

Lemma cube_in n j : In j (cube (S n)) -> exists b j', j = b :: j' /\ In j' (cube n).
Proof.
  simpl. rewrite in_app_iff, !in_map_iff. intros [(y & <- & H)|(y & <- & H)]; eauto.
Qed.

Lemma hadamard_orthonormal n : orthonormal bits_dec (cube n) hadamard.
Proof.
  unfold orthonormal. induction n as [|n IH]; intros j k Hj Hk.
  - simpl in Hj, Hk. destruct Hj as [<-|[]], Hk as [<-|[]]. simpl. destruct (bits_dec [] []); [ring|congruence].
  - apply cube_in in Hj. apply cube_in in Hk. destruct Hj as (b & j' & -> & Hj), Hk as (c & k' & -> & Hk).
    specialize (IH j' k' Hj Hk).
    change (cube (S n)) with (map (cons true) (cube n) ++ map (cons false) (cube n)).
    rewrite Sum_app, !Sum_map.
    assert (H2 : sqrt 2 * sqrt 2 = 2) by (apply sqrt_sqrt; lra).
    assert (Hs : sqrt 2 <> 0) by (pose proof (sqrt_lt_R0 2); lra).
    assert (E : forall a : bool, Sum (cube n) (fun i => hadamard (a :: i) (b :: j') * hadamard (a :: i) (c :: k'))
      = (if andb a b then -1 else 1) * (if andb a c then -1 else 1) / 2 * (if bits_dec j' k' then 1 else 0)).
    { intros a. rewrite <- IH, <- Sum_scal. apply Sum_ext. intros i _. simpl.
      set (u := if andb a b then -1 else 1). set (v := if andb a c then -1 else 1).
      replace (u * v / 2) with (u * v / (sqrt 2 * sqrt 2)) by (rewrite H2; reflexivity). field. assumption. }
    rewrite (E true), (E false).
    destruct (bits_dec j' k') as [->|N].
    + destruct (bits_dec (b :: k') (c :: k')) as [Q|Q]; destruct b, c; cbn [andb]; try congruence; lra.
    + destruct (bits_dec (b :: j') (c :: k')) as [Q|]; [congruence|]. ring.
Qed.

Theorem signed_hadamard_orthonormal n sign :
  (forall j, sign j = 1 \/ sign j = -1) -> orthonormal bits_dec (cube n) (signed_hadamard sign).
Proof.
  intros Hs j k Hj Hk. unfold signed_hadamard.
  rewrite (Sum_ext _ _ (fun i => hadamard i j * hadamard i k * (sign j * sign k))) by (intros; ring).
  rewrite Sum_scal_r, (hadamard_orthonormal n j k Hj Hk).
  destruct (bits_dec j k) as [->|]; [|ring]. destruct (Hs k) as [->| ->]; ring.
Qed.

End Hadamard.

(** * A scale rounded up never clips (2.4) *)

(** [s] is the stored scale, not below amax / 126.5; [xi] is the dither, zero without one. *)
Theorem scale_never_clips amax s x xi :
  amax / 126.5 <= s -> 0 < s -> Rabs x <= amax -> Rabs xi <= 1 / 2 ->
  Rabs (x / s) <= 126.5 /\ Rabs (x / s + xi) <= 127.
Proof.
  intros Hs H0 Hx Hxi.
  assert (K : Rabs (x / s) <= 126.5).
  { unfold Rdiv. rewrite Rabs_mult, (Rabs_pos_eq (/ s)) by (left; now apply Rinv_0_lt_compat).
    apply Rmult_le_reg_r with s; [assumption|]. rewrite Rmult_assoc, Rinv_l by lra. lra. }
  split; [assumption|]. apply Rle_trans with (1 := Rabs_triang _ _). lra.
Qed.

(** With the arithmetic of the write path: a monotone rounding [fl] that keeps 126.5 and 127 and their negatives, and a
    monotone rounding [rnd] to integers that keeps 127 and its negative, give a payload within [-127, 127]. *)
Theorem rounded_scale_never_clips (fl rnd : R -> R) amax s x xi :
  (forall a b, a <= b -> fl a <= fl b) -> (forall a b, a <= b -> rnd a <= rnd b) ->
  fl 126.5 = 126.5 -> fl (-126.5) = -126.5 -> fl 127 = 127 -> fl (-127) = -127 -> rnd 127 = 127 -> rnd (-127) = -127 ->
  amax / 126.5 <= s -> 0 < s -> Rabs x <= amax -> Rabs xi <= 1 / 2 ->
  -127 <= rnd (fl (fl (x / s) + xi)) <= 127.
Proof.
  intros Mf Mr F1 F2 F3 F4 R1 R2 Hs H0 Hx Hxi.
  destruct (scale_never_clips amax s x xi Hs H0 Hx Hxi) as [K _].
  assert (K' : -126.5 <= x / s <= 126.5).
  { revert K. unfold Rabs. destruct (Rcase_abs (x / s)); lra. }
  assert (Hxi' : - (1 / 2) <= xi <= 1 / 2).
  { revert Hxi. unfold Rabs. destruct (Rcase_abs xi); lra. }
  assert (-126.5 <= fl (x / s) <= 126.5) by (rewrite <- F1, <- F2 at 1; split; apply Mf; lra).
  assert (-127 <= fl (fl (x / s) + xi) <= 127) by (rewrite <- F3, <- F4 at 1; split; apply Mf; lra).
  rewrite <- R1, <- R2 at 1. split; apply Mr; lra.
Qed.

(** The scale stored is [up (amax / 126.5)] with [up] never below its argument. *)
Corollary rounded_up_scale (up : R -> R) amax x :
  (forall a, a <= up a) -> 0 < up (amax / 126.5) -> Rabs x <= amax -> Rabs (x / up (amax / 126.5)) <= 126.5.
Proof.
  intros Hu H0 Hx. apply (scale_never_clips amax (up (amax / 126.5)) x 0); auto. rewrite Rabs_R0. lra.
Qed.

(** Rounded down by any amount, the claim fails at the largest channel. *)
Theorem rounded_down_scale_exceeds amax s : 0 < s -> s < amax / 126.5 -> 126.5 < Rabs (amax / s).
Proof.
  intros H0 Hs. apply Rlt_le_trans with (amax / s); [|apply Rle_abs].
  apply Rmult_lt_reg_r with s; [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.
